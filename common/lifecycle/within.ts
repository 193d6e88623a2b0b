/** Settles as the work, or resolves to `late` after this many milliseconds. The work continues then. */
export async function within<T, L>(ms: number, work: Promise<T>, late: L): Promise<T | L> {
  const deadline = Promise.withResolvers<L>();
  const timer = setTimeout(deadline.resolve, ms, late);
  try {
    return await Promise.race([work, deadline.promise]);
  } finally {
    clearTimeout(timer);
  }
}
