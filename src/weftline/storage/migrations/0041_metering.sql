-- Usage: entries that add up, and their sums by minute, hour and day.

-- The number of the last entry.
ALTER TABLE tenants ADD COLUMN usage_seq {bigint} NOT NULL DEFAULT 0;

-- at: time of the call. teams: names between commas. The columns from calls on add up; an entry may take away what
-- another one has added. Money in billionths of a US dollar.
CREATE TABLE usage_entries (
    tenant                  TEXT NOT NULL,
    seq                     {bigint} NOT NULL,
    entry                   TEXT NOT NULL,
    call_id                 TEXT NOT NULL,
    at                      {bigint} NOT NULL,
    kind                    TEXT NOT NULL,
    agent_id                TEXT NOT NULL,
    session_id              TEXT NOT NULL,
    step                    TEXT NOT NULL,
    model                   TEXT NOT NULL,
    teams                   TEXT NOT NULL,
    calls                   {bigint} NOT NULL,
    failed_calls            {bigint} NOT NULL,
    reported_calls          {bigint} NOT NULL,
    unpriced_calls          {bigint} NOT NULL,
    total_tokens            {bigint} NOT NULL,
    input_tokens            {bigint} NOT NULL,
    output_tokens           {bigint} NOT NULL,
    cache_read_tokens       {bigint} NOT NULL,
    cache_write_tokens      {bigint} NOT NULL,
    naive_baseline_tokens   {bigint} NOT NULL,
    engine_assembled_tokens {bigint} NOT NULL,
    cached_tokens           {bigint} NOT NULL,
    capacity_tokens         {bigint} NOT NULL,
    cost_nanos              {bigint} NOT NULL,
    expected_cost_nanos     {bigint} NOT NULL,
    naive_cost_nanos        {bigint} NOT NULL,
    reported_cost_nanos     {bigint} NOT NULL,
    gather_micros           {bigint} NOT NULL,
    retrieve_micros         {bigint} NOT NULL,
    plan_micros             {bigint} NOT NULL,
    render_micros           {bigint} NOT NULL,
    timed_calls             {bigint} NOT NULL,
    provider_micros         {bigint} NOT NULL,
    graded_calls            {bigint} NOT NULL,
    quality                 {bigint} NOT NULL,
    scored_calls            {bigint} NOT NULL,
    estimated_calls         {bigint} NOT NULL,
    sent_tokens             {bigint} NOT NULL,
    useful_tokens           {bigint} NOT NULL,
    overhead_tokens         {bigint} NOT NULL,
    PRIMARY KEY (tenant, seq)
) {table};

CREATE INDEX usage_entries_by_call ON usage_entries (tenant, session_id, call_id);

-- Sums of an interval: unit is minute, hour or day, start its first second. The number of rows of an interval is
-- limited; what is beyond is in rows with the name (other).
CREATE TABLE usage_rollups (
    tenant                  TEXT NOT NULL,
    unit                    TEXT NOT NULL,
    start                   {bigint} NOT NULL,
    kind                    TEXT NOT NULL,
    agent_id                TEXT NOT NULL,
    session_id              TEXT NOT NULL,
    step                    TEXT NOT NULL,
    model                   TEXT NOT NULL,
    teams                   TEXT NOT NULL,
    calls                   {bigint} NOT NULL,
    failed_calls            {bigint} NOT NULL,
    reported_calls          {bigint} NOT NULL,
    unpriced_calls          {bigint} NOT NULL,
    total_tokens            {bigint} NOT NULL,
    input_tokens            {bigint} NOT NULL,
    output_tokens           {bigint} NOT NULL,
    cache_read_tokens       {bigint} NOT NULL,
    cache_write_tokens      {bigint} NOT NULL,
    naive_baseline_tokens   {bigint} NOT NULL,
    engine_assembled_tokens {bigint} NOT NULL,
    cached_tokens           {bigint} NOT NULL,
    capacity_tokens         {bigint} NOT NULL,
    cost_nanos              {bigint} NOT NULL,
    expected_cost_nanos     {bigint} NOT NULL,
    naive_cost_nanos        {bigint} NOT NULL,
    reported_cost_nanos     {bigint} NOT NULL,
    gather_micros           {bigint} NOT NULL,
    retrieve_micros         {bigint} NOT NULL,
    plan_micros             {bigint} NOT NULL,
    render_micros           {bigint} NOT NULL,
    timed_calls             {bigint} NOT NULL,
    provider_micros         {bigint} NOT NULL,
    graded_calls            {bigint} NOT NULL,
    quality                 {bigint} NOT NULL,
    scored_calls            {bigint} NOT NULL,
    estimated_calls         {bigint} NOT NULL,
    sent_tokens             {bigint} NOT NULL,
    useful_tokens           {bigint} NOT NULL,
    overhead_tokens         {bigint} NOT NULL,
    PRIMARY KEY (tenant, unit, start, agent_id, session_id, step, model, teams, kind)
) {table};

CREATE INDEX usage_rollups_by_agent ON usage_rollups (tenant, unit, agent_id, start);
CREATE INDEX usage_rollups_by_session ON usage_rollups (tenant, session_id, unit, start);

-- The same over all agents, sessions, steps and models.
CREATE TABLE usage_totals (
    tenant                  TEXT NOT NULL,
    unit                    TEXT NOT NULL,
    start                   {bigint} NOT NULL,
    kind                    TEXT NOT NULL,
    calls                   {bigint} NOT NULL,
    failed_calls            {bigint} NOT NULL,
    reported_calls          {bigint} NOT NULL,
    unpriced_calls          {bigint} NOT NULL,
    total_tokens            {bigint} NOT NULL,
    input_tokens            {bigint} NOT NULL,
    output_tokens           {bigint} NOT NULL,
    cache_read_tokens       {bigint} NOT NULL,
    cache_write_tokens      {bigint} NOT NULL,
    naive_baseline_tokens   {bigint} NOT NULL,
    engine_assembled_tokens {bigint} NOT NULL,
    cached_tokens           {bigint} NOT NULL,
    capacity_tokens         {bigint} NOT NULL,
    cost_nanos              {bigint} NOT NULL,
    expected_cost_nanos     {bigint} NOT NULL,
    naive_cost_nanos        {bigint} NOT NULL,
    reported_cost_nanos     {bigint} NOT NULL,
    gather_micros           {bigint} NOT NULL,
    retrieve_micros         {bigint} NOT NULL,
    plan_micros             {bigint} NOT NULL,
    render_micros           {bigint} NOT NULL,
    timed_calls             {bigint} NOT NULL,
    provider_micros         {bigint} NOT NULL,
    graded_calls            {bigint} NOT NULL,
    quality                 {bigint} NOT NULL,
    scored_calls            {bigint} NOT NULL,
    estimated_calls         {bigint} NOT NULL,
    sent_tokens             {bigint} NOT NULL,
    useful_tokens           {bigint} NOT NULL,
    overhead_tokens         {bigint} NOT NULL,
    PRIMARY KEY (tenant, unit, start, kind)
) {table};

-- The last entry that is rolled up, the first seconds of which there are still roll-ups, and the day on which those past
-- retention were deleted.
CREATE TABLE usage_cursors (
    tenant       TEXT NOT NULL PRIMARY KEY,
    rolled_up_to {bigint} NOT NULL,
    minutes_from {bigint} NOT NULL,
    hours_from   {bigint} NOT NULL,
    days_from    {bigint} NOT NULL,
    pruned_at    {bigint} NOT NULL
) {table};
