/** Names are ASCII and shorter than this. */
export const MAX_NAME = 32;

/**
 * The paths that are read from an event, as a tree of names. Node 0 is "nothing of interest", node 1 the event itself.
 * Names are found by parent and length, so most keys of an event cost one lookup.
 * Throws Error for a name that cannot be looked up.
 */
export function createPaths(paths: readonly string[]) {
  const all = ['', ''];
  for (const path of paths) {
    const names = path.split('.');
    names.forEach((name, k) => {
      if (!/^[\x21-\x7e]+$/.test(name) || name.length >= MAX_NAME)
        throw new Error(`the path ${path} has a name that is not of 1 to ${MAX_NAME - 1} ASCII characters`);
      const prefix = names.slice(0, k + 1).join('.');
      if (!all.includes(prefix)) all.push(prefix);
    });
  }
  /** by parent and length: the last child; `before` links to the previous one of the same parent and length */
  const last = new Uint16Array(all.length * MAX_NAME);
  const before = new Uint16Array(all.length);
  const start = new Uint16Array(all.length);
  const parents = new Uint16Array(all.length);
  const letters: number[] = [];
  for (let node = 2; node < all.length; node++) {
    const path = all[node]!;
    const dot = path.lastIndexOf('.');
    parents[node] = dot < 0 ? 1 : all.indexOf(path.slice(0, dot));
    const slot = parents[node]! * MAX_NAME + (path.length - dot - 1);
    start[node] = letters.length;
    letters.push(...Buffer.from(path.slice(dot + 1)));
    before[node] = last[slot]!;
    last[slot] = node;
  }
  const name = Uint8Array.from(letters);

  return {
    /** the number of nodes */
    size: all.length,
    /** returns the node of a path, names joined by dots */
    nodeOf: (path: string): number => all.indexOf(path),
    parentOf: (node: number): number => parents[node]!,
    /** Returns the child of `node` whose name stands in bytes[from, from + length), or 0 if there is none. */
    childOf(node: number, bytes: Uint8Array, from: number, length: number): number {
      if (length >= MAX_NAME) return 0;
      for (let child = last[node * MAX_NAME + length]!; child !== 0; child = before[child]!) {
        const at = start[child]!;
        let k = length - 1;
        while (k >= 0 && name[at + k] === bytes[from + k]) k--;
        if (k < 0) return child;
      }
      return 0;
    },
  };
}
