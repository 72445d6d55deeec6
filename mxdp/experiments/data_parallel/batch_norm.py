OWN, APART, SYNCED, OTHER_ORDER = "own", "own, mxdp's code", "synchronised", "other order"
