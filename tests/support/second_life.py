"""The reference EPP, which is another when it is started again: `HABIT MARK ARGUMENT…`. MARK is a file that it makes.

From its second life on: `faulty` names another endpoint in the metadata than in the header, `dies` ends when a request
is aborted, `slow` takes two seconds to start, `never` does not start, `refuses` ends at once.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from reference_epp.__main__ import main

if __name__ == "__main__":
    habit, mark = sys.argv[1], Path(sys.argv[2])
    del sys.argv[1:3]
    again = mark.exists()
    mark.touch()
    match habit if again else "same":
        case "faulty":
            sys.argv += ["--fault", "metadata-differs"]
        case "dies":
            sys.argv += ["--fault", "dies-when-aborted"]
        case "slow":
            time.sleep(2)
        case "never":
            time.sleep(3600)
        case "refuses":
            sys.exit("the lock of the last life is still there")
    sys.exit(main())
