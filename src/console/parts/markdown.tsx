import type { Token, Tokens } from 'marked';
import { Fragment, memo, type ReactNode, useRef } from 'react';
import { EMPTY, lexGrown } from '../live/markdown-blocks.ts';
import { Code } from './code.tsx';
import { countText, endOf, pieces, safeLink, visible } from './text.ts';

/** Text of an agent as Markdown: tokens become elements, so that no HTML is ever made from it. */
export const Markdown = memo(function Markdown({ text }: { readonly text: string }) {
  const lexed = useRef(EMPTY);
  const { shown, hidden } = endOf(text);
  // A text that grows is drawn from its last block on.
  lexed.current = lexGrown(lexed.current, shown);
  return (
    <div className="markdown">
      {hidden > 0 ? <p className="quiet">{countText(hidden)} characters before these</p> : null}
      {lexed.current.blocks.map((token, index) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: pieces of a text have no other name
        <TopBlock key={`${index}-${token.type}`} token={token} />
      ))}
    </div>
  );
});

const TopBlock = memo(function TopBlock({ token }: { readonly token: Token }) {
  return block(token, 0);
});

const SPACE = /\s/;

/** A text as it is, or, when it is long, as blocks one below the other. */
function drawn(text: string, isEnd: RegExp): ReactNode {
  const found = pieces(visible(text), isEnd);
  if (found.length === 1) return found[0];
  return found.map((piece, index) => (
    // biome-ignore lint/suspicious/noArrayIndexKey: pieces of a text have no other name
    <span key={index} className="piece">
      {piece}
    </span>
  ));
}

/** Quotes and lists inside of more others are shown as they were written. */
const MAX_DEPTH = 20;

function blocks(tokens: readonly Token[], depth: number): ReactNode {
  // biome-ignore lint/suspicious/noArrayIndexKey: pieces of a text have no other name
  return tokens.map((token, index) => <Fragment key={`${index}-${token.type}`}>{block(token, depth)}</Fragment>);
}

function block(token: Token, depth: number): ReactNode {
  if (depth > MAX_DEPTH) return <p>{visible(token.raw)}</p>;
  switch (token.type) {
    case 'space':
      return null;
    case 'heading': {
      const Heading = (['h3', 'h4', 'h5', 'h6'] as const)[Math.min(3, (token as Tokens.Heading).depth - 1)] ?? 'h6';
      return <Heading>{inline(token.tokens ?? [])}</Heading>;
    }
    case 'code': {
      const { text, lang } = token as Tokens.Code;
      return (
        <figure className="code">
          {lang ? <figcaption>{visible(lang)}</figcaption> : null}
          <pre>
            <code>
              <Code text={text} name={lang ?? ''} />
            </code>
          </pre>
        </figure>
      );
    }
    case 'blockquote':
      return <blockquote>{blocks(token.tokens ?? [], depth + 1)}</blockquote>;
    case 'list': {
      const { ordered, start, items } = token as Tokens.List;
      const entries = items.map((item, index) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: entries of a text have no other name
        <li key={index}>{blocks(item.tokens, depth + 1)}</li>
      ));
      return ordered ? <ol start={start === '' ? 1 : start}>{entries}</ol> : <ul>{entries}</ul>;
    }
    case 'table':
      return tableOf(token as Tokens.Table);
    case 'hr':
      return <hr />;
    case 'paragraph':
      return <p>{inline(token.tokens ?? [])}</p>;
    case 'text':
      return token.tokens === undefined ? drawn((token as Tokens.Text).text, SPACE) : inline(token.tokens);
    default:
      return <p>{visible(token.raw)}</p>;
  }
}

function tableOf({ header, rows }: Tokens.Table): ReactNode {
  return (
    <div className="scrolls">
      <table>
        <thead>
          <tr>
            {header.map((cell, index) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: cells have no other name
              <th key={index}>{inline(cell.tokens)}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, index) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: rows have no other name
            <tr key={index}>
              {row.map((cell, column) => (
                // biome-ignore lint/suspicious/noArrayIndexKey: cells have no other name
                <td key={column}>{inline(cell.tokens)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function inline(tokens: readonly Token[]): ReactNode {
  // biome-ignore lint/suspicious/noArrayIndexKey: pieces of a text have no other name
  return tokens.map((token, index) => <Fragment key={`${index}-${token.type}`}>{span(token)}</Fragment>);
}

function span(token: Token): ReactNode {
  const tokens = 'tokens' in token ? token.tokens : undefined;
  const inner = () => inline(tokens ?? []);
  switch (token.type) {
    case 'strong':
      return <strong>{inner()}</strong>;
    case 'em':
      return <em>{inner()}</em>;
    case 'del':
      return <del>{inner()}</del>;
    case 'codespan':
      return <code>{visible((token as Tokens.Codespan).text)}</code>;
    case 'br':
      return <br />;
    case 'link':
    case 'image': {
      // Pictures of other hosts are never loaded: they become links.
      const { href, text } = token as Tokens.Link;
      const address = safeLink(href);
      const label = token.type === 'link' ? inner() : visible(text === '' ? href : text);
      if (address === undefined) return label;
      const host = URL.parse(address)?.host ?? '';
      return (
        <a href={address} rel="noreferrer noopener" target="_blank" title={address}>
          {label}
          {host !== '' && !text.includes(host) ? <small className="host"> ({host})</small> : null}
        </a>
      );
    }
    case 'escape':
    case 'text':
      return tokens === undefined ? drawn((token as Tokens.Text).text, SPACE) : inner();
    default:
      return visible(token.raw);
  }
}
