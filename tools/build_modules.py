"""Build the WebAssembly modules of the package's games, for pages: alphazero_nb/web/modules.xz and modules.json.

    python tools/build_modules.py           build those that are stale
    python tools/build_modules.py --all     build all of them
    python tools/build_modules.py --check   build nothing; exit code 1 if any is stale, and name it

A module is stale when the rules of its game, the kernels of the search or of the network, or the way in which they are
compiled has changed since it was built. Comments and docstrings do not count.
"""
import argparse, multiprocessing, os, sys, time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path: sys.path.insert(0, str(ROOT))
WEB = ROOT/"alphazero_nb"/"web"
GAMES = ("tictactoe", "connect4", "gomoku(size=15)", "gomoku(size=9)", "dots(rows=3,cols=3)", "othello(size=8)",
         "othello(size=6)", "chess", "chess(variant=gardner)", "pig(goal=100)", "2048(goal=2048)",
         "go(size=9,komi=7)", "go(size=7,komi=9)", "hex(size=7)", "backgammon")


def stale_modules() -> dict:
    "Return {name: digest of the sources of today} of each game whose module is missing or old."
    from alphazero_nb.core.registry import get_game
    from alphazero_nb.web.modules import game_digest, packaged_modules
    now, built = {name: game_digest(get_game(name)) for name in GAMES}, packaged_modules()
    return {name: digest for name, digest in now.items() if name not in built or built[name][0] != digest}


def build(name: str) -> tuple:
    "Compile a game. Return its name, the digest of its sources, its module and the seconds."
    from alphazero_nb.core.registry import get_game
    from alphazero_nb.web.modules import game_digest
    from alphazero_nb.web.wasm import compile_game
    begin, game = time.perf_counter(), get_game(name)
    return name, game_digest(game), compile_game(game), time.perf_counter() - begin


def build_all(names, workers: int):
    "Compile games side by side, the longest first. Yield what `build` returns."
    from alphazero_nb.web.wasm import EXPORTS, MATHEMATICS, compile_kernels
    begin = time.perf_counter()
    compile_kernels((*EXPORTS, *MATHEMATICS))   # Once, on disk, for all workers
    print(f"search and network: {time.perf_counter() - begin:.0f} s", flush=True)
    first = sorted(names, key=lambda name: not name.startswith("chess"))
    with ProcessPoolExecutor(min(workers, len(first)), multiprocessing.get_context("spawn")) as pool: yield from pool.map(build, first)


def write(modules: dict) -> None:
    "Write the archive and its list, each completely or not at all."
    from alphazero_nb.network.checkpoint import write_whole
    from alphazero_nb.web.modules import pack_modules
    archive, listed = pack_modules({name: modules[name] for name in GAMES})
    write_whole(WEB/"modules.xz", archive)
    write_whole(WEB/"modules.json", listed.encode())
    print(f"{len(GAMES)} modules, {sum(len(module) for _, module in modules.values()):,} bytes, in {len(archive):,}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="build all modules, stale or not")
    parser.add_argument("--check", action="store_true", help="build nothing; exit code 1 if any is stale")
    parser.add_argument("--workers", type=int, default=min(4, os.cpu_count() or 1), help="processes")
    options = parser.parse_args()
    from alphazero_nb.web.modules import packaged_modules
    stale, built = stale_modules(), packaged_modules()
    if options.check:
        print(f"stale: {', '.join(stale)}. Run `make modules`." if stale else "No module is stale.")
        sys.exit(bool(stale))
    wanted = GAMES if options.all else list(stale)
    if not wanted and set(built) == set(GAMES): return print("No module is stale.")
    begin, made = time.perf_counter(), {name: built[name] for name in GAMES if name in built and name not in wanted}
    for name, digest, module, seconds in build_all(wanted, options.workers) if wanted else ():
        made[name] = digest, module
        print(f"{name}: {len(module):,} bytes, {seconds:.0f} s", flush=True)
    write(made)
    print(f"{time.perf_counter() - begin:.0f} s in all")


if __name__ == "__main__": main()
