const AT_ONCE = 100;

/** So many results, some of them at a time. */
export async function inBatches<Result>(count: number, open: (index: number) => Promise<Result>): Promise<Result[]> {
  const opened: Result[] = [];
  while (opened.length < count) {
    const size = Math.min(AT_ONCE, count - opened.length);
    opened.push(...(await Promise.all(Array.from({ length: size }, (_, index) => open(opened.length + index)))));
  }
  return opened;
}
