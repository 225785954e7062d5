"""What every test shares: how long and how often Hypothesis may try."""

import signal

from hypothesis import HealthCheck, settings

# No deadline: on a busy machine a slow example is not a defect.
settings.register_profile("default", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", parent=settings.get_profile("default"), max_examples=1000)
settings.load_profile("default")

# Started in the background, pytest inherits an ignored SIGINT and hands it to every program that a test wants to interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
