/** The part of pngjs that the pictures use. Its published types bring another version of those of Node. */
declare module 'pngjs' {
  interface Packing {
    /** 2: colours without transparency. */
    readonly colorType?: number;
    readonly deflateLevel?: number;
    /** 0: the one of zlib. */
    readonly deflateStrategy?: number;
    /** 0: none. */
    readonly filterType?: number;
  }
  export class PNG {
    static readonly sync: {
      read(bytes: Uint8Array): PNG;
      write(picture: PNG, packing?: Packing): Buffer;
    };
    constructor(size: { readonly width: number; readonly height: number });
    readonly width: number;
    readonly height: number;
    readonly data: Buffer;
  }
}
