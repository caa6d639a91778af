import { type Static, Type } from 'typebox';

/** A file that a turn produced: contract/bridge 1 and 4. */
export const Artifact = Type.Object({
  relativePath: Type.String({ description: 'From the working directory, or the name of a file of a gateway task.' }),
  label: Type.String({ description: 'Its name for people.' }),
  contentType: Type.String(),
  sizeBytes: Type.Integer(),
  sha256: Type.String({ description: 'In hex.' }),
  downloadUrl: Type.String({ description: 'From the root of this bridge; good for 24 hours, without a credential.' }),
});

export type Artifact = Static<typeof Artifact>;
