/**
 * As much of a browser's document as the page's views need to be built. Strings can only become text: there is no
 * parser for markup here, and a setter for it does not exist.
 */
export class FakeText {
  parent: FakeElement | undefined;
  data: string;
  constructor(data: string) {
    this.data = data;
  }
  get length(): number {
    return this.data.length;
  }
  get textContent(): string {
    return this.data;
  }
  appendData(more: string): void {
    this.data += more;
  }
}

export class FakeElement {
  readonly tag: string;
  readonly attributes = new Map<string, string>();
  parent: FakeElement | undefined;
  nodes: (FakeElement | FakeText)[] = [];
  disabled = false;
  className = '';
  scrollHeight = 0;
  scrollTop = 0;
  clientHeight = 0;

  constructor(tag: string) {
    this.tag = tag;
  }
  setAttribute(name: string, value: string): void {
    this.attributes.set(name, value);
    if (name === 'class') this.className = value;
  }
  append(...children: (FakeElement | FakeText | string)[]): void {
    for (const child of children) {
      const node = typeof child === 'string' ? new FakeText(child) : child;
      node.parent = this;
      this.nodes.push(node);
    }
  }
  before(...siblings: FakeElement[]): void {
    const parent = this.parent;
    if (parent === undefined) return;
    parent.nodes.splice(parent.nodes.indexOf(this), 0, ...siblings);
    for (const sibling of siblings) sibling.parent = parent;
  }
  replaceChildren(...children: (FakeElement | string)[]): void {
    this.nodes = [];
    this.append(...children);
  }
  remove(): void {
    const parent = this.parent;
    if (parent !== undefined) parent.nodes = parent.nodes.filter((node) => node !== this);
  }
  addEventListener(): void {}
  get open(): boolean {
    return this.attributes.has('open');
  }
  get isConnected(): boolean {
    return this.parent !== undefined;
  }
  get childElementCount(): number {
    return this.elements().length;
  }
  get firstElementChild(): FakeElement | undefined {
    return this.elements()[0];
  }
  get lastElementChild(): FakeElement | undefined {
    return this.elements().at(-1);
  }
  get textContent(): string {
    return this.nodes.map((node) => node.textContent).join('');
  }
  set textContent(text: string) {
    this.nodes = [new FakeText(text)];
  }
  /** Itself and all elements in it. */
  all(): FakeElement[] {
    return [this, ...this.elements().flatMap((child) => child.all())];
  }
  private elements(): FakeElement[] {
    return this.nodes.filter((node) => node instanceof FakeElement);
  }
}

export const fakeDocument = {
  createElement: (tag: string) => new FakeElement(tag),
  createTextNode: (text: string) => new FakeText(text),
  activeElement: null,
};
