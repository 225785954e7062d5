"""What every test shares: how long and how often Hypothesis may try."""

from hypothesis import HealthCheck, settings

# No deadline: on a busy machine a slow example is not a defect.
settings.register_profile("default", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", parent=settings.get_profile("default"), max_examples=1000)
settings.load_profile("default")
