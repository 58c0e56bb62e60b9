"`python -m alphazero_nb` is the command `alphazero-nb`, also where the command is not on the path."
import sys

from alphazero_nb.cli import main

if __name__ == "__main__": sys.exit(main())
