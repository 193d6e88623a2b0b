/** Wall clock in unix milliseconds; passed as an argument so that tests set it. */
export type Clock = () => number;
export const systemClock: Clock = () => Date.now();
