/**
 * On every response. The policy is that of JSON: an HTML page states its own, and a route that may be cached says so;
 * both by setting the header themselves.
 */
export const plainHeaders: Readonly<Record<string, string>> = {
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-resource-policy': 'same-origin',
  'x-frame-options': 'DENY',
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
  'cache-control': 'no-store',
};

/** The same for a request that came over TLS. */
export const secureHeaders: Readonly<Record<string, string>> = {
  ...plainHeaders,
  'strict-transport-security': 'max-age=31536000',
};
