"""Runs a Lua file with the library that Slurm's own plugin is linked with: `lua51.py LIBRARY FILE ARGUMENTS`.

Debian packages no interpreter for that library beside the library itself. This is a program
of its own, since a script of Lua may end the whole process.
"""

from __future__ import annotations

import ctypes
import json
import sys


def main() -> int:
    library, file, *arguments = sys.argv[1:]
    lua = ctypes.CDLL(library)
    lua.luaL_newstate.restype = ctypes.c_void_p
    lua.lua_tolstring.restype = ctypes.c_char_p
    state = ctypes.c_void_p(lua.luaL_newstate())
    lua.luaL_openlibs(state)
    given = "arg = {" + ",".join(map(json.dumps, arguments)) + "}"
    for load, text in ((lua.luaL_loadstring, given), (lua.luaL_loadfile, file)):
        if load(state, text.encode()) or lua.lua_pcall(state, 0, 0, 0):
            sys.stderr.buffer.write(lua.lua_tolstring(state, -1, None))
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
