"""Study games whose answers are known, for the page "Studies of small games".

    python tools/measure_studies.py [--minutes 10] [--seeds 3] [--only WORD] [--folder FOLDER] [--out FILE]
    python tools/measure_studies.py --same 40 [--minutes 1] [--seeds 2] [--out FILE]

The first command studies each game below, a few together with a variant, and prints the verdict. The second one compares
Nim with 15 stones with itself, under another name, so many times with other seeds: every difference that such a study
calls certain is a mistake, and with 95 % at most one study in twenty should have any.
"""
import argparse, json, tempfile
from datetime import date
from pathlib import Path

from alphazero_nb.core.registry import file_stem, get_game, import_rules, register
from alphazero_nb.lab.study import Study, StudyPlan, study
from alphazero_nb.lab.verdict import who_is_ahead
from measure_engines import processor

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
STUDIES = [("tictactoe",), ("connect4",), ("domineering(size=5)",), ("hex(size=5)", "hex(size=5,swap=1)"),
           ("nim(stones=15)", "nim(stones=16)"), ("dots(rows=2,cols=2)", "dots(rows=3,cols=3)")]


def trimmed(result: dict, row: dict) -> dict:
    "Return a result without what its page does not show, and with how it was made."
    return dict({key: value for key, value in result.items() if key not in ("choices",)}, cpu=processor(), date=str(date.today()), **row)


def other_nim(stones: int = 15):
    "Return Nim under another name."
    game = get_game(f"nim(stones={stones})")
    cls, arguments = game.__reduce__()[1][0], dict(game.__reduce__()[1][2])
    return cls(f"other_nim(stones={stones})", *game.__reduce__()[1][1][1:], **arguments)


def study_all(args) -> list[dict]:
    rows = []
    for names in STUDIES:
        if args.only and args.only not in names[0]: continue
        found = study(names[0], names[1:], args.minutes, args.seeds, args.folder / f"{file_stem(names[0])}-{args.seeds}-seeds")
        print(found, flush=True)
        ahead = {name: who_is_ahead([row for row in found.data["rows"] if row["variant"] == name]) for name in found.data["variants"]}
        print(ahead, found.data["exact"], flush=True)
        rows.append(trimmed(found.data, dict(ahead=ahead)))
    return rows


def study_same(args) -> list[dict]:
    register("other_nim", other_nim)
    rows = []
    for number in range(args.same):
        seeds = tuple(range(number * args.seeds, (number + 1) * args.seeds))
        with tempfile.TemporaryDirectory() as folder:
            plan = StudyPlan(("nim(stones=15)", "other_nim(stones=15)"), args.minutes, seeds)
            result = Study(plan, folder, lambda text: None).run()
        sure = [row["measure"] for row in result["gaps"] if row["sure"]]
        rows.append(dict(number=number, seeds=list(seeds), differs=sure, questions=result["questions"], games=result["games"]))
        print(rows[-1], flush=True)
    print(f"{sum(bool(row['differs']) for row in rows)} of {len(rows)} studies call something different")
    return [dict(same=rows, minutes=args.minutes, cpu=processor(), date=str(date.today()))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="", help="studies whose first game has this in its name")
    parser.add_argument("--same", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=Path("runs/studies"))
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    for name in ("nim", "domineering"): import_rules(EXAMPLES / f"{name}.py")
    rows = study_same(args) if args.same else study_all(args)
    if args.out:
        old = json.loads(args.out.read_text(encoding="utf-8")) if args.out.exists() else []
        key = lambda row: "same" if "same" in row else row["variants"][0]
        args.out.write_text(json.dumps([row for row in old if key(row) not in set(map(key, rows))] + rows, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__": main()
