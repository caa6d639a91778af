/** Base URL and path of an operation, each with or without a query; a slash too many or too few does not matter. */
export function upstreamUrl(baseUrl: string, path: string): string {
  const [base = '', baseQuery = ''] = splitAt(baseUrl, '?');
  const [pathname = '', pathQuery = ''] = splitAt(path, '?');
  const query = [baseQuery, pathQuery].filter((part) => part !== '').join('&');
  let end = base.length;
  while (end > 0 && base[end - 1] === '/') end -= 1;
  const separator = pathname.startsWith('/') || pathname === '' ? '' : '/';
  return `${base.slice(0, end)}${separator}${pathname}${query === '' ? '' : `?${query}`}`;
}

function splitAt(text: string, mark: string): readonly string[] {
  const at = text.indexOf(mark);
  return at === -1 ? [text] : [text.slice(0, at), text.slice(at + 1)];
}

/** One segment of a path. Half a surrogate pair, which no URL can hold, becomes a replacement character. */
export function pathSegment(text: string): string {
  return encodeURIComponent(text.toWellFormed());
}
