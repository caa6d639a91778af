interface CountedDatabase {
  readonly name: string;
  readonly tables: readonly { readonly name: string; readonly rows: number }[];
}

/** A line for each table: how many rows it has. */
export function tablesText(databases: readonly CountedDatabase[]): string {
  const lines = databases.flatMap(({ name, tables }) =>
    tables.map((table) => `  ${`${name}.${table.name}`.padEnd(36)} ${String(table.rows).padStart(10)} rows\n`),
  );
  return lines.join('');
}
