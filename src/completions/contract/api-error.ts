import { type Static, Type } from 'typebox';

/** Every error of the service, in the shape that clients of OpenAI's API read (contract/completions 5). */
export const ApiError = Type.Object({
  error: Type.Object({
    message: Type.String(),
    type: Type.String(),
    param: Type.Union([Type.String(), Type.Null()]),
    code: Type.Union([Type.String(), Type.Null()]),
  }),
});

export type ApiErrorBody = Static<typeof ApiError>;
