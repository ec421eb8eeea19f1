"""What Outrider's objects in a Grid Engine are called, if nobody says otherwise."""

ACCOUNT = "outrider"
WORK_QUEUE = "all.q"
RESERVATION_QUEUE = "outrider.q"
