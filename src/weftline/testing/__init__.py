"""For those who test against Weftline: a clock that can be moved, embedders, servers, receipts."""
