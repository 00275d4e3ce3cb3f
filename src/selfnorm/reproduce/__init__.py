"""The paper's tables and figure on public text: which runs, which columns, the paper's own numbers beside ours."""
