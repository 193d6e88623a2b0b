/** A sum for each owner, and one of all. An owner with nothing takes no memory. */
export function createTotals() {
  const sums = new Map<string, number>();
  let all = 0;
  const of = (owner: string): number => sums.get(owner) ?? 0;
  function add(owner: string, more: number): void {
    all += more;
    const sum = of(owner) + more;
    if (sum === 0) sums.delete(owner);
    else sums.set(owner, sum);
  }
  return {
    of,
    all: (): number => all,
    add,
    /** Adds until the returned function is called, which is idempotent. */
    take(owner: string, amount: number): () => void {
      add(owner, amount);
      let isHeld = true;
      return () => {
        if (isHeld) add(owner, -amount);
        isHeld = false;
      };
    },
  };
}
