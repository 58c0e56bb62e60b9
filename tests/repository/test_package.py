"The package as one types it: `import alphazero_nb as az` has every public name and costs next to nothing."
import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import alphazero_nb
import alphazero_nb.all as everything
import build_modules
from alphazero_nb.web.modules import packaged_modules


def test_a_public_name_is_the_same_from_both_sides():
    assert set(alphazero_nb._public()) == set(everything.__all__)
    for name in everything.__all__: assert getattr(alphazero_nb, name) is getattr(everything, name), name
    assert set(everything.__all__) <= set(dir(alphazero_nb))


@pytest.mark.parametrize("name", ["Trainerr", "_private", "__path_of_nothing__"])
def test_other_names_are_not_there(name):
    with pytest.raises(AttributeError, match=name): getattr(alphazero_nb, name)


def run(program):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_name_imports_its_module_and_no_other():
    assert run("import sys, alphazero_nb as az; print('numpy' in sys.modules); az.SearchSettings; "
               "print('alphazero_nb.search.search' in sys.modules, 'torch' in sys.modules, 'matplotlib' in sys.modules)"
               ) == "False\nTrue False False"


def test_the_modules_of_the_games_belong_to_the_sources():
    from alphazero_nb.network.pretrained import list_pretrained
    stale = build_modules.stale_modules()
    assert not stale, f"the modules for pages of {', '.join(stale)} are old: run `make modules` (a minute or two) and commit what it writes."
    open_games = {name for name in list_pretrained() if not alphazero_nb.get_game(name).has_hidden_information}
    missing = open_games - set(build_modules.GAMES)
    assert not missing, f"there is no module for {', '.join(missing)}: add it to GAMES of tools/build_modules.py and run `make modules`."
    assert set(build_modules.GAMES) == set(packaged_modules())


def test_every_file_of_the_package_is_packed():
    "What is no module stands in pyproject.toml, so that the wheel and the source archive have it."
    home, project = Path(alphazero_nb.__file__).parent, (Path(__file__).parents[2]/"pyproject.toml").read_text(encoding="utf-8")
    patterns = ast.literal_eval(re.search(r"^alphazero_nb = (\[.*\])", project, re.M)[1])
    files = {path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    packed = {path.relative_to(home).as_posix() for pattern in patterns for path in home.glob(pattern)}
    data = {name for name in files if not name.endswith((".py", "README.md"))}
    assert data == packed and {"web/modules.xz", "web/modules.json", "web/worker.js"} <= packed


def test_modules_are_found_beside_names():
    assert run("from alphazero_nb import cli, core; from alphazero_nb.ui import play; import alphazero_nb as az; "
               "print(callable(az.play), play.play is az.play, cli.__name__)") == "True True alphazero_nb.cli"


def test_self_play_and_training_need_no_drawing_and_no_compiler(tmp_path):
    "As where ipywidgets, matplotlib and IPython are not installed."
    program = f"""
import sys
DRAWING = ("ipywidgets", "matplotlib", "IPython")
for name in DRAWING: sys.modules[name] = None
import alphazero_nb as az
from alphazero_nb.training.learner import TrainSettings
settings = TrainSettings(games_per_iteration=16, batch_size=16, evaluate_every=0)
trainer = lambda: az.Trainer("tictactoe", "tiny", {str(tmp_path / "run")!r}, "cpu", simulations=4, games=16, train_settings=settings)
trainer().fit(iterations=1)
run = trainer().fit(iterations=1)
print(len(run.history), [name for name in sys.modules if name.split(".")[0] in DRAWING and sys.modules[name]],
      "torch._dynamo" in sys.modules)
"""
    assert run(program).splitlines()[-1] == "2 [] False", "training has imported PyTorch's compiler, which takes two seconds"


def test_what_the_readme_shows_can_be_pasted(tmp_path):
    "Every Python block of README.md, in order, in one program and an empty folder; only the run of ten minutes is smaller."
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    program = "\n".join(re.findall(r"^```python\n(.*?)^```", readme, re.M | re.S))
    assert program.count("minutes=10") == 1 and "az.play(" in program
    small = 'games=16, simulations=4, train_settings=az.TrainSettings(games_per_iteration=16, batch_size=32)'
    program = program.replace('"connect4", folder', f'"connect4", "tiny", {small}, folder').replace("minutes=10", "iterations=1")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=900, cwd=tmp_path, input="quit\n",
                          env=dict(os.environ, PYTHONPATH=str(Path(__file__).parents[2])))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    assert "0 1 2 3 4 5 6" in done.stdout and "% of the points" in done.stdout and (tmp_path / "runs/connect4/manifest.json").exists()
