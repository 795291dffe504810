"""Leave one source out: refit every constant from the start values without the source, score on it.

Run with NOFIT=1 so that params.py does not load fitted.json. argv: rounds
"""

import sys, copy, collections
import facts
import model as M, check as C, fit as F
from params import P

START = copy.deepcopy(P)


def reset():
    for k in list(P):
        P[k] = copy.deepcopy(START[k])


rows, left = C.load(f"{facts.FACTS}/measured_public.csv")
fam = lambda s: s.split()[0].split("/")[0]
names = collections.Counter(fam(r["source"]) for r, p in rows if C.tags(r, p))
allp = []
for s, n in names.most_common():
    if n < 4:
        continue
    reset()
    tr = [x for x in rows if fam(x[0]["source"]) != s and F.fit_row(x[0])]
    F.run(tr, int(sys.argv[1]), verbose=False)
    res = C.score_rows([x for x in rows if fam(x[0]["source"]) == s])
    allp += res
    print(s, n)
    C.show(C.summary(res)[0])
    sys.stdout.flush()
print("all held-out predictions together")
C.show(C.summary(allp)[0])
