"""Counts the results of a test run. `./dev test` prints the count as its last line, after the names of the failed tests.

A file NAME.xml contains the results of a test program or of pytest. A file NAME.crashed contains a line about a program that
ended without results. It counts as one failed test. The exit code is 1 if a test failed or no test passed.

usage: count_results.py FOLDER
"""

import pathlib
import sys
import xml.etree.ElementTree as xml

passed = failed = skipped = 0
folder = pathlib.Path(sys.argv[1])
names = []
for file in sorted(folder.iterdir()):
    if file.suffix == ".crashed":
        failed += 1
        names.append(file.read_text().strip())
    elif file.suffix == ".xml":
        for case in xml.parse(file).iter("testcase"):
            if case.find("failure") is not None or case.find("error") is not None:
                failed += 1
                names.append(f"{file.stem}: {case.get('classname')}.{case.get('name')}")
            elif case.find("skipped") is not None or case.get("status") == "notrun":
                skipped += 1
            else:
                passed += 1
for name in names:
    print("failed:", name)
print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
sys.exit(1 if failed or not passed else 0)
