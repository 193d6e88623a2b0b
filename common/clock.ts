/** The wall clock in unix milliseconds. It is passed as an argument so that tests can set it. */
export type Clock = () => number;
export const systemClock: Clock = () => Date.now();
