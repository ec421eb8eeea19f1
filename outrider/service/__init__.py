"""outriderd: events in, the core asked, decisions written down and carried out.

`desk` decides and remembers, one event at a time, without threads, sockets or a clock of its
own. Everything else here brings events to it (`web`, `workers`) or says what it is told with
(`requests`, `answers`, `ports`).
"""
