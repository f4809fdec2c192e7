/**
 * Creates elements. Text is never parsed as markup.
 * @module
 */

type Attributes = Readonly<Record<string, string | number>>;
type Child = Node | string;

export function html<K extends keyof HTMLElementTagNameMap>(tag: K, attributes: Attributes = {},
  ...children: Child[]): HTMLElementTagNameMap[K] {
  return withContent(document.createElement(tag), attributes, children);
}

export function svg<K extends keyof SVGElementTagNameMap>(tag: K, attributes: Attributes = {},
  ...children: Child[]): SVGElementTagNameMap[K] {
  return withContent(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);
}

function withContent<E extends Element>(element: E, attributes: Attributes, children: Child[]): E {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

/** Matches windows as narrow as a phone, as in the style sheet. There, details are closed until a tap. */
export const narrow = matchMedia('(max-width: 30rem)');

/** Keeps details elements of class `more` open in wide windows and closed in narrow ones. */
export function fitDetails(): void {
  const fit = () => document.querySelectorAll<HTMLDetailsElement>('details.more').forEach((details) => {
    details.open = !narrow.matches;
  });
  narrow.addEventListener('change', fit);
  fit();
}

export function byId<E extends HTMLElement = HTMLElement>(id: string): E {
  return document.getElementById(id) as E;
}
