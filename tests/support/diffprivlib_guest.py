"""Program in diffprivlib's environment: its mechanisms and its KMeans, asked line by line.

Each line of the input is a request in JSON. A mechanism answers with an outcome. A fit sends every
call of noise with the outcome that it has drawn, and goes on with the one that it is sent back.
"""

import json
import sys


def send(message):
    print(json.dumps(message), flush=True)


def read():
    return json.loads(sys.stdin.readline())


def ask(mechanism):
    """Replace the noise of a class of mechanisms by what the other side answers."""
    draw = mechanism.randomise

    def randomise(self, value):
        names = ("epsilon", "sensitivity", "lower", "upper")
        call = {name: float(getattr(self, name)) for name in names}
        outcome = draw(self, value)
        send({"call": mechanism.__name__, "value": float(value), "outcome": outcome, **call})
        return read()["outcome"]

    mechanism.randomise = randomise


def main():
    import numpy as np
    from diffprivlib import mechanisms, models

    request = read()
    if "mechanism" in request:
        mechanism = getattr(mechanisms, request["mechanism"])(**request["parameters"])
        while line := sys.stdin.readline():
            send({"outcome": mechanism.randomise(json.loads(line)["value"])})
        return
    ask(mechanisms.GeometricFolded)
    ask(mechanisms.LaplaceBoundedDomain)
    parameters = request["parameters"] | {"bounds": tuple(request["parameters"]["bounds"])}
    fitted = models.KMeans(**parameters).fit(np.array(request["fit"]))
    shown = {name: getattr(fitted, f"{name}_") for name in request["shown"]}
    send({name: np.asarray(value).tolist() for name, value in shown.items()})


if __name__ == "__main__":
    main()
