"""A stand-in for GNU Backgammon with the bridge inside: gnubg_stub.py MODE LOG -t -q -r -p SCRIPT. Requests go to LOG.

race: values the race      hang: never answers a question     die: ends at a question       silent: is never ready
refuse: answers with ?     short: a number too few            nan: no number                large: an equity of 9
words: no numbers          late: an old answer first          chatter: writes more than answers     deaf: ready, and reads nothing
"""
import sys
import time
from pathlib import Path

MODE, LOG, *rest = sys.argv[1:]
assert rest[:4] == ["-t", "-q", "-r", "-p"] and "bridge ready" in Path(rest[4]).read_text("utf-8")
log = open(LOG, "a", encoding="utf-8")


def total(half): return sum(place * int(count, 16) for place, count in enumerate(half, 1))


def value(board):
    "The lead of the player who rolls, as a probability and as an equity with another order: three points for a race that is far."
    lead = (total(board[:25]) - total(board[25:])) / 400
    return f"{min(1, max(0, .5 + lead)):.7f}:{max(-3, min(3, lead ** 3)):.7f}"


if MODE == "silent": time.sleep(10_000)
print("GNU Backgammon 9.99\n\nbridge ready", flush=True)
if MODE == "deaf": time.sleep(10_000)
for line in sys.stdin:
    if line.startswith("quit"): break
    print(line.strip(), file=log, flush=True)
    number, plies, *boards = line.split()
    if MODE == "hang": time.sleep(10_000)
    if MODE == "die": sys.exit("out of checkers.")
    answer = " ".join(map(value, boards))
    if MODE == "refuse": answer = "? board is not legal"
    if MODE == "short": answer = answer.rpartition(" ")[0]
    if MODE == "nan": answer = " ".join(["nan:nan"] * len(boards))
    if MODE == "large": answer = " ".join(["0.5:9"] * len(boards))
    if MODE == "words": answer = "I win"
    if MODE == "late": print(f"bridge {int(number) - 1} 0.1:0.1", flush=True)
    if MODE == "chatter": print("thinking\nbridge\n\nbridge over the river", flush=True)
    print("bridge", number, answer, flush=True)
