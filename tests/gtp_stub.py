"""A program that speaks GTP about Hex, in one of several ways: gtp_stub.py MODE LOG. Every line that it gets goes to LOG.

fair: takes the first empty cell      hang: never answers genmove    die: ends at genmove        illegal: takes a1 for ever
empty: answers genmove with nothing   resign: gives up at its second move                        late: answers twice, with an old number first
chatter: writes more than answers     small: refuses its board       old: speaks version 1       refuses: refuses a legal move
slow: thinks for a second
"""
import sys
import time

MODE, LOG = sys.argv[1:]
log, size, taken, asked = open(LOG, "a", encoding="utf-8"), 0, set(), 0


def first_empty(): return next(f"{'abcdefghijk'[cell % size]}{cell // size + 1}" for cell in range(size * size)
                               if f"{'abcdefghijk'[cell % size]}{cell // size + 1}" not in taken)


def genmove():
    global asked
    asked += 1
    if MODE == "hang": time.sleep(10_000)
    if MODE == "slow": time.sleep(1)
    if MODE == "die": sys.exit("out of luck.")
    if MODE == "empty": return ""
    if MODE == "resign" and asked > 1: return "resign"
    move = "a1" if MODE == "illegal" else first_empty()
    taken.add(move)
    return move.upper()


for line in sys.stdin:
    print(line.strip(), file=log, flush=True)
    number, word, *rest = line.split() if line[:1].isdigit() else ("", *line.split())
    sign, answer = "=", ""
    if word == "quit": break
    if word == "protocol_version": answer = "1" if MODE == "old" else "2"
    elif word == "list_commands": answer = "boardsize"
    elif word == "boardsize":
        size = int(rest[0])
        if MODE == "small": sign, answer = "?", "unacceptable size"
    elif word == "clear_board": taken, asked = set(), asked
    elif word == "play":
        taken.add(rest[1])
        if MODE == "refuses": sign, answer = "?", "illegal move"
    elif word == "genmove":
        if MODE == "late": print("=1 a1\n", flush=True)
        answer = genmove()
    if MODE == "chatter": print(f"I think about {word}\n\nand = equals 3", flush=True)
    print(f"{sign}{number} {answer}\n", flush=True)
