"""Writes train.csv and test.csv: the weight, the length and the colour of fruits, and the name of each. Some weights are missing."""

import csv
import random

FRUITS = {"apple": (150, 7, ["red", "green"]), "banana": (120, 18, ["yellow", "green"]), "cherry": (8, 2, ["red"])}  # grams, centimetres

chance = random.Random(1)
for name, rows in (("train.csv", 600), ("test.csv", 150)):
    with open(name, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["", "weight", "length", "colour", "fruit"])
        for i in range(rows):
            fruit, (weight, length, colours) = chance.choice(sorted(FRUITS.items()))
            sizes = [round(chance.gauss(mean, mean * 0.35), 3) for mean in (weight, length)]
            table.writerow([i, sizes[0] if i % 10 else "NA", sizes[1], chance.choice(colours), fruit])
