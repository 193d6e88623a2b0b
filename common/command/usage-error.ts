/** The arguments are wrong; the message says which. */
export class UsageError extends Error {}
