/** Where something stands in a text, counted from 1. */
export interface Position {
  readonly line: number;
  readonly column: number;
}

/** A value as somebody wrote it, with its place, before anything is known about the settings. */
export type ValueNode = ScalarNode | ListNode | MappingNode;

export interface ScalarNode {
  readonly kind: 'scalar';
  readonly at: Position;
  readonly value: string | number | boolean | null;
}

export interface ListNode {
  readonly kind: 'list';
  readonly at: Position;
  readonly items: readonly ValueNode[];
}

export interface MappingNode {
  readonly kind: 'mapping';
  readonly at: Position;
  readonly entries: ReadonlyMap<string, MappingEntry>;
}

export interface MappingEntry {
  readonly keyAt: Position;
  readonly node: ValueNode;
}

/** A key with nothing after it counts as not written. */
export function isAbsent(node: ValueNode | undefined): boolean {
  return node === undefined || (node.kind === 'scalar' && node.value === null);
}
