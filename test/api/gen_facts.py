#!/usr/bin/env python3
"""Writes a C program that prints every size, offset and constant of cuda_abi.h, as the header HEADER has them.

    gen_facts.py cuda_abi.h >facts.c;  cc -DHEADER='"cuda_abi.h"' facts.c;  cc -DHEADER='"toolkit.h"' facts.c

A line of cuda_abi.h that is of none of the forms known here is an error: nothing is left out silently.
"""

import re
import sys

MEMBER = re.compile(r"[\w ]+[ *]+(\w+)(?:\[\w+\])?;$")
CONSTANT = re.compile(r"(\w+) = [-\w]+,?$")
ALIAS = re.compile(r"typedef [\w ]+[ *]+(\w+);$")
FUNCTION_POINTER = re.compile(r"typedef \w+ \(\*(\w+)\)\([\w *,]+\);$")
FUNCTION = re.compile(r"typedef \w+ (\w+)\([\w *,]+\);$")
INCOMPLETE = re.compile(r"typedef (?:struct|union) (\w+) (\w+);$")
DEFINE = re.compile(r"#define (\w+) +\S.*$")
IGNORED = re.compile(r"#include <std\w+\.h>$|#ifndef CUDACKPT_CUDA_ABI_H$|#define CUDACKPT_CUDA_ABI_H$|#endif$")


def facts(lines):
    lines = iter(lines)
    for number, line in lines:
        if match := re.fullmatch(r"typedef (?:struct|union) (\w+) \{", line):
            yield f"TYPE({match[1]})"
            path, pending = [], []
            for number, line in lines:
                if re.fullmatch(r"(?:struct|union) \{", line):
                    path.append([])
                elif end := re.fullmatch(r"\} (\w+);", line):
                    if not path:
                        if end[1] != match[1]:
                            sys.exit(f"line {number}: {end[1]} is not the name of the struct, {match[1]}")
                        break
                    inner = [f"{end[1]}.{member}" for member in path.pop()] + [end[1]]
                    (path[-1] if path else pending).extend(inner)
                elif member := MEMBER.fullmatch(line):
                    (path[-1] if path else pending).append(member[1])
                else:
                    sys.exit(f"line {number}: not a member: {line}")
            for member in pending:
                yield f"MEMBER({match[1]}, {member})"
        elif match := re.fullmatch(r"enum \{ (.*) \};", line):
            for constant in match[1].split(", "):
                if not CONSTANT.fullmatch(constant):
                    sys.exit(f"line {number}: not a constant: {constant}")
                yield f"CONSTANT({constant.split()[0]})"
        elif line == "enum {":
            for number, line in lines:
                if line == "};":
                    break
                constant = CONSTANT.fullmatch(line)
                if not constant:
                    sys.exit(f"line {number}: not a constant: {line}")
                yield f"CONSTANT({constant[1]})"
        elif match := INCOMPLETE.fullmatch(line):
            if match[1] != match[2]:
                sys.exit(f"line {number}: two names for one struct: {line}")
            yield f"NAME({match[1]})"
        elif match := ALIAS.fullmatch(line) or FUNCTION_POINTER.fullmatch(line):
            yield f"TYPE({match[1]})"
        elif match := FUNCTION.fullmatch(line):
            yield f"NAME({match[1]})"
        elif IGNORED.fullmatch(line):
            pass
        elif match := DEFINE.fullmatch(line):
            yield f"CONSTANT({match[1]})"
        else:
            sys.exit(f"line {number}: of no known form: {line}")


def main():
    with open(sys.argv[1]) as f:
        # Comments become blanks of as many lines, so that numbers stay right.
        text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m[0].count("\n"), f.read(), flags=re.S)
    lines = [(number, line.strip()) for number, line in enumerate(text.split("\n"), 1)]
    body = "\n".join("    " + fact for fact in facts([line for line in lines if line[1]]))
    print("""#include <stddef.h>
#include <stdio.h>

#include HEADER

/* The class tells integers, floats, pointers, structs and unions apart. */
#define CLASS(object) __builtin_classify_type(object)
#define TYPE(type) \\
    { \\
        static type object; \\
        printf("%s size %zu alignment %zu class %d\\n", #type, sizeof(type), _Alignof(type), CLASS(object)); \\
    }
#define MEMBER(type, member) \\
    { \\
        static type object; \\
        printf("%s.%s offset %zu size %zu class %d\\n", #type, #member, offsetof(type, member), \\
               sizeof(object.member), CLASS(object.member)); \\
    }
#define CONSTANT(name) printf("%s %lld\\n", #name, (long long)(name));
#define NAME(type) { typedef type *pointer; printf("%s %zu\\n", #type, sizeof(pointer)); }

int main(void)
{
""" + body + """
    return 0;
}""")


main()
