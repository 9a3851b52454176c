-- Keys that sign layers and definitions. A retired key has no secret; its public key is endorsed by the current one.
CREATE TABLE line_keys (
    tenant      TEXT NOT NULL,
    kid         TEXT NOT NULL,
    secret        {blob},
    public_key  {blob} NOT NULL,
    endorsement {blob},
    created_at  {bigint} NOT NULL,
    PRIMARY KEY (tenant, kid)
) {table};

-- One current key.
CREATE UNIQUE INDEX line_keys_current ON line_keys (tenant) WHERE secret IS NOT NULL;

-- The signature of each version of a layer and of an agent's definition.
CREATE TABLE line_signatures (
    tenant    TEXT NOT NULL,
    line_id   TEXT NOT NULL,
    seq       {bigint} NOT NULL,
    kid       TEXT NOT NULL,
    signature {blob} NOT NULL,
    PRIMARY KEY (tenant, line_id, seq)
) {table};
