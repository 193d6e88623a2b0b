/** The call's words are off; the message says which. */
export class UsageError extends Error {}
