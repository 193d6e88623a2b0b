/** A node of a statement as ClickHouse parsed it, printed by EXPLAIN AST. */
export interface Node {
  readonly type: string;
  readonly rest: string;
  readonly children: Node[];
}

/** Returns the root of what EXPLAIN AST printed (TSVRaw). Undefined if a line of it is no node. */
export function parseAst(printed: string): Node | undefined {
  const path: Node[] = [];
  for (const line of printed.split('\n').filter((l) => l !== '')) {
    const m = /^( *)([A-Za-z:]+)(?: (.*))?$/.exec(line);
    if (m === null) return undefined;
    const [, { length: depth } = '', type = '', rest = ''] = m;
    const node: Node = { type, rest: rest.trim(), children: [] };
    if (depth > path.length || (depth === 0 && path.length > 0)) return undefined;
    path.length = depth;
    path.at(-1)?.children.push(node);
    path.push(node);
  }
  return path[0];
}

/** Yields a node and everything below it. */
export function* nodesOf(root: Node): Generator<Node, void> {
  const pending = [root];
  for (let node = pending.pop(); node !== undefined; node = pending.pop()) {
    yield node;
    for (const child of node.children) pending.push(child);
  }
}

/** Returns the name in `name (alias a) (children 2)`. */
export function nameOf(rest: string): string {
  return rest
    .replace(/ ?\(children \d+\)$/, '')
    .replace(/ ?\(alias .*\)$/, '')
    .trim();
}

/** Returns the name in `(alias name)`. Undefined if the node has none. */
function aliasOf(rest: string): string | undefined {
  return /\(alias ([^()]*)\)$/.exec(rest.replace(/ ?\(children \d+\)$/, ''))?.[1];
}

/** Deeper than ClickHouse parses (max_parser_depth), and far from the end of the stack. */
const DEEPEST = 1_000;

/**
 * Returns how many nodes a statement has once each alias is replaced by what it stands for, as ClickHouse does before
 * it reads a row. Of several expressions with one alias the sum counts, in whatever SELECT they stand. Infinity if
 * aliases are nested too deeply, or stand for each other: then no order of looking at them tells how large they are.
 */
export function expandedSize(root: Node): number {
  const named = Map.groupBy(nodesOf(root), (node) => aliasOf(node.rest));
  const sizes = new Map<string, number>();
  const sizeOf = (node: Node, depth: number, within?: string): number => {
    if (depth > DEEPEST) return Infinity;
    let size = 1;
    if (node.type === 'Identifier') {
      const name = nameOf(node.rest);
      // a name inside its own expression (`lower(message) AS message`) is a column
      if (name !== within) size += sizeOfAlias(name, depth + 1);
    }
    for (const child of node.children) size += sizeOf(child, depth + 1, within);
    return size;
  };
  const sizeOfAlias = (alias: string, depth: number): number => {
    const known = sizes.get(alias);
    if (known !== undefined) return known;
    // whoever comes here again before its size is known stands for itself
    sizes.set(alias, Infinity);
    let size = 0;
    for (const node of named.get(alias) ?? []) size += sizeOf(node, depth, alias);
    sizes.set(alias, size);
    return size;
  };
  return sizeOf(root, 0);
}
