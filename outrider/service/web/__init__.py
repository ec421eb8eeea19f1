"""The HTTP API of outriderd: who asks is found out, what is asked is read and checked, and handed on.

`outrider.service.front` is all that is known here of the rest of the service.
"""
