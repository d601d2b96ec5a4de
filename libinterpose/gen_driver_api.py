#!/usr/bin/env python3
"""Writes driver_api.inc, driver_raw.inc and driver_reasons.inc from a toolkit's headers and driver_api.policy.

    gen_driver_api.py [--check] [TOOLKIT]     TOOLKIT: /usr/local/cuda, or $CUDA_HOME

--check writes nothing: it compares with what is there, prints the difference and exits 1 if there is one, or if a
symbol is unreviewed or a policy line decides nothing. This script only parses; what a row means is said in C.
"""

import collections
import difflib
import fnmatch
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
STAND_INS = os.path.join(HERE, "..", "test", "api")
TYPEDEF_HEADERS = ["cudaTypedefs.h", "cudaProfilerTypedefs.h", "cudaGLTypedefs.h", "cudaEGLTypedefs.h",
                   "cudaVDPAUTypedefs.h"]
TREATMENTS = {"FORWARD", "TRACKED", "UNGATED", "UNSAVEABLE", "SPECIAL"}
FLAVOURS = {"": "LEGACY", "_ptds": "PTDS", "_ptsz": "PTSZ"}

Policy = collections.namedtuple("Policy", "pattern treatment reason line")


def split_symbol(symbol):
    """cuMemcpyHtoD_v2_ptds -> cuMemcpyHtoD, 2, _ptds"""
    base, number, flavour = re.fullmatch(r"(\w*?)(?:_v(\d+))?(_ptds|_ptsz)?", symbol).groups()
    return base, int(number or 1), flavour or ""


def split_list(text):
    """Splits at the commas outside of parentheses."""
    parts, depth = [""], 0
    for c in text:
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return [p.strip() for p in parts]


def argument_name(parameter):
    match = re.search(r"(\w+)\s*(?:\[\w*\])*$", parameter)
    if not match or not re.search(r"[\s*]", parameter[:match.start()]):
        sys.exit(f"gen_driver_api.py: can't find the name of the parameter '{parameter}'")
    return match[1]


def tidy(text):
    text = re.sub(r"\s+", " ", text).strip()
    text = re.sub(r"\s*\*\s*", " *", text)
    text = re.sub(r"\* \*", "**", text)
    return re.sub(r"\s*,\s*", ", ", text)


def read_prototypes(toolkit):
    """Symbol -> list of parameters."""
    command = [os.environ.get("CC", "cc"), "-E", "-P", "-x", "c", "-I", os.path.join(STAND_INS, "include"), "-I",
               os.path.join(toolkit, "include"), os.path.join(STAND_INS, "toolkit.h")]
    text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    prototypes = {}
    for symbol, parameters in re.findall(r"\bCUresult\s+(cu[A-Z]\w*)\s*\(([^;{}]*)\)\s*;", text):
        parameters = tidy(parameters)
        prototypes[symbol] = [] if parameters in ("", "void") else split_list(parameters)
    return prototypes


def read_versions(toolkit, symbols):
    """Symbol -> the version that cuGetProcAddress knows it by.

    The typedefs say which versions a base name has in a flavour, not which symbol belongs to one: both lists
    ascend, so they pair up in order.
    """
    versions = collections.defaultdict(set)
    for header in TYPEDEF_HEADERS:
        with open(os.path.join(toolkit, "include", header)) as f:
            for base, version, flavour in re.findall(r"\bPFN_(cu\w+?)_v(\d+)(_ptds|_ptsz)?\)", f.read()):
                versions[base, flavour].add(int(version))
    groups = collections.defaultdict(list)
    for symbol in symbols:
        base, number, flavour = split_symbol(symbol)
        groups[base, flavour].append((number, symbol))
    since = {}
    for key, members in groups.items():
        if len(members) != len(versions[key]):
            sys.exit(f"gen_driver_api.py: {key[0]}{key[1]}: {len(members)} symbols but {len(versions[key])} versions")
        for (_, symbol), version in zip(sorted(members), sorted(versions[key])):
            since[symbol] = version
    return since


def read_policy(path):
    policy = []
    with open(path) as f:
        for number, line in enumerate(f, 1):
            line = line.rstrip("\n")
            if not line or line.startswith("#"):
                continue
            fields = line.split(None, 2)
            if len(fields) != 3 or fields[1] not in TREATMENTS | {"RAW", "OMIT"}:
                sys.exit(f"{path}:{number}: expected: name-or-glob TREATMENT reason")
            if re.search(r'["\\]', fields[2]):
                sys.exit(f"{path}:{number}: the reason becomes a C string: no quotes or backslashes")
            if policy and fields[0] <= policy[-1].pattern:
                sys.exit(f"{path}:{number}: not sorted, or twice the same name")
            policy.append(Policy(*fields, number))
    return policy


def choose(policy, symbol):
    """The line for a symbol: its full name, else its base name, else the longest glob; None if there is none."""
    base = split_symbol(symbol)[0]
    for name in (symbol, base):
        for p in policy:
            if p.pattern == name:
                return p
    globs = [p for p in policy if "*" in p.pattern and
             (fnmatch.fnmatchcase(symbol, p.pattern) or fnmatch.fnmatchcase(base, p.pattern))]
    longest = [p for p in globs if len(p.pattern) == max(len(g.pattern) for g in globs)]
    if len(longest) > 1:
        sys.exit(f"gen_driver_api.py: {symbol}: both {longest[0].pattern} and {longest[1].pattern} match")
    return longest[0] if longest else None


def generate(toolkit, policy):
    """-> {file name: text}, problems"""
    prototypes = read_prototypes(toolkit)
    rows, raw, reasons, problems, used = [], [], [], [], set()
    for p in policy:
        if p.treatment in ("RAW", "OMIT"):
            used.add(p.pattern)
            if p.treatment == "RAW":
                raw.append(f'ENTRY_RAW({p.pattern}, "{p.reason}")')
                if p.pattern in prototypes:
                    problems.append(f"policy line {p.line}: {p.pattern} has a prototype, it needn't be RAW")
    omitted = {p.pattern for p in policy if p.treatment == "OMIT"}
    symbols = sorted(symbol for symbol in prototypes if symbol not in omitted)
    since = read_versions(toolkit, symbols)
    for symbol in symbols:
        base, _, flavour = split_symbol(symbol)
        line = choose(policy, symbol)
        if line:
            used.add(line.pattern)
            treatment = line.treatment
            if treatment == "UNSAVEABLE":
                reasons.append(f'REASON({symbol}, "{line.reason}")')
        else:
            treatment = "UNREVIEWED"
            reasons.append(f'REASON({symbol}, "not known to this version of cudackpt")')
            problems.append(f"{symbol}: no line of driver_api.policy matches")
        parameters = prototypes[symbol]
        rows.append(f"ENTRY({treatment}, {symbol}, {base}, {since[symbol]}, {FLAVOURS[flavour]}, "
                    f"({', '.join(parameters) or 'void'}), ({', '.join(map(argument_name, parameters))}))")
    problems += [f"policy line {p.line}: {p.pattern} decides nothing" for p in policy if p.pattern not in used]

    def text(lines):
        return "/* Generated by gen_driver_api.py; edit driver_api.policy instead. */\n" + "\n".join(lines) + "\n"
    return {"driver_api.inc": text(rows), "driver_raw.inc": text(sorted(raw)),
            "driver_reasons.inc": text(reasons)}, problems


def main():
    arguments = sys.argv[1:]
    check = "--check" in arguments
    arguments = [a for a in arguments if a != "--check"]
    if len(arguments) > 1 or any(a.startswith("-") for a in arguments):
        sys.exit(__doc__)
    toolkit = arguments[0] if arguments else os.environ.get("CUDA_HOME", "/usr/local/cuda")
    if not os.path.exists(os.path.join(toolkit, "include", "cuda.h")):
        sys.exit(f"gen_driver_api.py: no include/cuda.h in {toolkit}; name the toolkit's folder")
    files, problems = generate(toolkit, read_policy(os.path.join(HERE, "driver_api.policy")))
    for name, text in files.items():
        path = os.path.join(HERE, name)
        if not check:
            with open(path, "w") as f:
                f.write(text)
            continue
        old = open(path).read() if os.path.exists(path) else ""
        difference = list(difflib.unified_diff(old.splitlines(), text.splitlines(), name, name + " (regenerated)",
                                               lineterm="", n=0))
        if difference:
            problems += [f"{name} is not what the generator writes:"] + difference
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if check and problems else 0


sys.exit(main())
