# %% [markdown]
# # A warehouse in three figures
#
# This notebook opens a warehouse of the data pipeline without Spark: its tables are Parquet files.
# Make one first, from your own posts or from a synthetic match:
#
#     thyme posts synth --users 5000 --posts 100000 --out w
#     thyme trace build --posts w --users 100 --out w
#     thyme oracle --trace w --out w
#
# Open the file as a notebook in VS Code, or in JupyterLab with Jupytext. As a script,
# `python examples/notebooks/warehouse.py w figures` writes the figures into a folder.

# %%
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from thyme.pipeline.warehouse import Warehouse

IN_NOTEBOOK = "ipykernel" in sys.modules
WAREHOUSE = Path("w" if IN_NOTEBOOK or len(sys.argv) < 2 else sys.argv[1])
FIGURES = Path("figures" if IN_NOTEBOOK or len(sys.argv) < 3 else sys.argv[2])


def read(stage: str, table: str) -> pd.DataFrame:
    """Reads a table of the warehouse into memory."""
    files = Warehouse(WAREHOUSE).open_stage(stage).table_files(table)
    frame: pd.DataFrame = pd.concat(pd.read_parquet(file, partitioning=None) for file in files)
    return frame


def save(figure: Figure, name: str) -> None:
    """Writes a figure into the folder, as SVG."""
    FIGURES.mkdir(parents=True, exist_ok=True)
    figure.savefig(FIGURES / f"{name}.svg")
    print(FIGURES / f"{name}.svg")


# %% [markdown]
# ## 1. When people posted
#
# The trace covers the busiest hours, or those you chose; its manifest says which.

# %%
posts = read("posts", "posts")
posts["at"] = pd.to_datetime(posts["at_us"], unit="us", utc=True)
timetable = Warehouse(WAREHOUSE).open_stage("trace").manifest.config["rules"]["timetable"]
begin = pd.to_datetime(timetable["starts_us"], unit="us", utc=True)
end = begin + pd.Timedelta(seconds=timetable["length_s"])

figure, axes = plt.subplots(figsize=(9, 3), layout="constrained")
per_minute = posts.set_index("at").resample("1min").size()
axes.plot(per_minute.index, per_minute.to_numpy(), color="#0072B2", linewidth=1)
axes.axvspan(begin, end, color="#E69F00", alpha=0.2, label="window of the trace")
axes.set(xlabel="UTC", ylabel="posts per minute", title=f"{len(posts):,} posts")
axes.legend()
save(figure, "posts")

# %% [markdown]
# ## 2. How popular tags are
#
# A straight line here is Zipf's law. Subscriptions are to the most popular 60 % of the tags.

# %%
operations = read("trace", "operations")
inserts = operations[operations["op"] == "insert"]
popularity = inserts["tags"].explode().value_counts()

figure, axes = plt.subplots(figsize=(5, 4), layout="constrained")
axes.loglog(range(1, len(popularity) + 1), popularity.to_numpy(), ".", color="#009E73")
axes.set(xlabel="rank of the tag", ylabel="inserts with the tag", title=f"{len(popularity)} tags")
save(figure, "tags")

# %% [markdown]
# ## 3. What users do, and what they should be notified of
#
# The oracle has the notifications of a perfect execution; a run is measured against them.

# %%
notifications = read("oracle", "notifications")

figure, axes = plt.subplots(figsize=(9, 3), layout="constrained")
for title, instants, colour in (
    ("inserts", inserts["at_us"], "#0072B2"),
    ("subscribes", operations.loc[operations["op"] == "subscribe", "at_us"], "#E69F00"),
    ("expected notifications", notifications["at_us"], "#111111"),
):
    per_10_s = (instants // 10_000_000 * 10).value_counts().sort_index()
    axes.plot(per_10_s.index, per_10_s.to_numpy(), label=title, color=colour)
axes.set(xlabel="s since the operations began", ylabel="in 10 s", yscale="symlog")
axes.legend(ncols=3)
save(figure, "operations")
