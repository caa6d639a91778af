import { type Static, type TObject, Type } from 'typebox';

/** A body that may be left out altogether; when there is one it is an object like any other. */
export function optionalBody<Body extends TObject>({ properties }: Body, isStrict = false) {
  const notAnObject = { type: ['array', 'string', 'number', 'boolean', 'null'] };
  return Type.Unsafe<Static<Body> | undefined>({
    properties,
    ...(isStrict && { additionalProperties: false }),
    not: notAnObject,
  });
}
