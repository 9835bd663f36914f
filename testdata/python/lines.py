"""Prints line tables of this Python and the lines that it derives from them: data for the tests of our decoder.

One line per table: minor version, first line, table in hexadecimal, then offset:line of each instruction, with `-` for those
that belong to no line."""
import dis
import sys
import types

MODULES = "textwrap", "types", "bisect", "contextlib"


def codes(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)


def lines(code):
    if hasattr(code, "co_lines"):
        for start, end, line in code.co_lines():
            for offset in range(start, end, 2):
                yield offset, line
        return
    line, starts = None, dict(dis.findlinestarts(code))
    for offset in range(0, len(code.co_code), 2):
        line = starts.get(offset, line)
        yield offset, line


def main():
    for name in MODULES:
        module = __import__(name)
        with open(module.__file__) as file:
            source = file.read()
        for code in list(codes(compile(source, module.__file__, "exec")))[:12]:
            table = code.co_linetable if hasattr(code, "co_lines") else code.co_lnotab
            pairs = ["%d:%s" % (offset, "-" if line is None else line) for offset, line in lines(code)]
            if len(pairs) < 250:
                print(sys.version_info[1], code.co_firstlineno, table.hex() or "00", *pairs[::3] + pairs[-1:])


main()
