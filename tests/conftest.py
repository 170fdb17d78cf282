"""Property tests try the same examples everywhere and never judge a machine's speed.

``pytest --hypothesis-profile search`` looks for new examples.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("same", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("search", deadline=None, max_examples=1000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("same")
