"""Writes train.csv and test.csv: the weight, the length and the colour of fruits, and the name of each."""

import csv
import random

FRUITS = {"apple": (150, 7, 0.3), "banana": (120, 18, 0.6), "cherry": (8, 2, 0.1)}  # grams, centimetres, hue

chance = random.Random(1)
for name, rows in (("train.csv", 600), ("test.csv", 150)):
    with open(name, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["id", "weight", "length", "hue", "fruit"])
        for i in range(rows):
            fruit, means = chance.choice(sorted(FRUITS.items()))
            table.writerow([i, *(round(chance.gauss(mean, mean * 0.35), 3) for mean in means), fruit])
