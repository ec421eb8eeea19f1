"""`python -m outrider.service.web.description` prints the API's OpenAPI description, as it is checked in."""

from __future__ import annotations

import json
import sys
from typing import cast

from fastapi.routing import APIRoute

from outrider.service.front import Front
from outrider.service.web.app import make_api
from outrider.service.web.asking import Asker
from outrider.service.web.limits import Limits


def describe() -> str:
    # Nothing is asked, so nothing has to be behind the routes.
    asker = Asker(cast(Front, None), Limits())
    return json.dumps(make_api(asker, [], APIRoute).openapi(), indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    sys.stdout.write(describe())
