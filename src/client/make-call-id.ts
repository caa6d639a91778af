/** Ids that no other client has: the bridge knows a repeated call by them. */
export type MakeCallId = () => string;

export function createCallIds(): MakeCallId {
  // Not randomUUID, which browsers keep from pages that came over plain HTTP.
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  const client = Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
  let count = 0;
  return () => {
    count += 1;
    return `${client}-${count}`;
  };
}
