"""A client that does what it is told: asks again when the answer says, and never in between."""

import random
import time
import urllib.error
import urllib.request


def get(url, tenant, patience_s=10.0):
    """The body of `url`; raises when it would have to wait longer than `patience_s` in all."""
    give_up = time.monotonic() + patience_s
    while True:
        left_ms = max(0, int((give_up - time.monotonic()) * 1000))
        headers = {"x-tenant": tenant, "tollgate-max-wait-ms": str(left_ms)}
        try:
            with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
                return answer.read()
        except urllib.error.HTTPError as refusal:
            pause_ms = refusal.headers.get("tollgate-pause-ms")
            if pause_ms is None:
                raise  # no rate limit, or no known time to retry
            # Somewhat longer than the pause, so that clients refused together retry apart.
            pause_s = int(pause_ms) / 1000 * (1 + random.random() / 10)
            if time.monotonic() + pause_s > give_up:
                raise
            time.sleep(pause_s)
