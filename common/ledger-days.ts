/**
 * How long the ledger, dead letters and marks of replays are kept, days (the TTL of their tables). They expire part by
 * part: rows that are a day younger than that are all there.
 */
export const LEDGER_DAYS = 400;
