/** A node of a statement as ClickHouse parsed it, printed by EXPLAIN AST. */
export interface Node {
  readonly depth: number;
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
    const node: Node = { depth: (m[1] ?? '').length, type: m[2] ?? '', rest: (m[3] ?? '').trim(), children: [] };
    if (node.depth > path.length || (node.depth === 0 && path.length > 0)) return undefined;
    path.length = node.depth;
    path.at(-1)?.children.push(node);
    path.push(node);
  }
  return path[0];
}

/** Returns the name in `name (alias a) (children 2)`. */
export function nameOf(rest: string): string {
  return rest
    .replace(/ ?\(children \d+\)$/, '')
    .replace(/ ?\(alias .*\)$/, '')
    .trim();
}
