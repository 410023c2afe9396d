// Is a value what a JSON schema says? What may be left out is filled in, so that whoever reads it finds
// every field. Knows as much of JSON Schema as the schema of our records uses.

export class Mismatch extends Error {
  /** @param {string} key of a sentence: traces.problem.<key> @param {object} values in it */
  constructor(key, values) {
    super(`${key} ${JSON.stringify(values)}`);
    this.key = key;
    this.values = values;
  }
}

/**
 * @param {object} schema with `$defs`
 * @returns {(value: any) => any} gives the value back, completed; throws `Mismatch`
 */
export function checkOf(schema) {
  const made = new Map(); // definition → its check

  function definition(reference) {
    const name = reference.replace('#/$defs/', '');
    if (!made.has(name)) {
      made.set(name, (value, path) => made.get(name)(value, path)); // one that refers to itself
      made.set(name, make(schema.$defs[name]));
    }
    return made.get(name);
  }

  function make(part) {
    if (part.$ref !== undefined) return definition(part.$ref);
    if (part.discriminator !== undefined) return oneOfKind(part.discriminator);
    if (part.anyOf !== undefined) return anyOf(part.anyOf);
    if (part.enum !== undefined) return oneOf(part.enum);
    if (part.type === 'array') return list(make(part.items ?? {}));
    if (part.type === 'object' && part.properties === undefined) return map(make(part.additionalProperties));
    if (part.type === 'object') return object(part);
    return plain(part);
  }

  function anyOf(parts) {
    const orNull = parts.filter(({ type }) => type !== 'null');
    if (orNull.length !== 1 || orNull.length === parts.length) throw new TypeError('only "… or null" is known');
    const check = make(orNull[0]);
    return (value, path) => (value === null ? null : check(value, path));
  }

  function oneOfKind({ propertyName, mapping }) {
    const kinds = new Map(Object.entries(mapping).map(([kind, reference]) => [kind, definition(reference)]));
    return (value, path) => {
      const check = isObject(value) ? kinds.get(value[propertyName]) : undefined;
      if (check === undefined) {
        throw new Mismatch('kind', { type: brief(isObject(value) ? value[propertyName] : value) });
      }
      return check(value, path);
    };
  }

  function object({ properties, required = [], additionalProperties }) {
    const fields = Object.entries(properties).map(([name, part]) => [name, make(part), part.default]);
    const isClosed = additionalProperties === false;
    return (value, path) => {
      if (!isObject(value)) throw wrong(path, value, 'object');
      for (const name of required) {
        if (!Object.hasOwn(value, name)) throw new Mismatch('missing', { field: at(path, name) });
      }
      for (const name of isClosed ? Object.keys(value) : []) {
        if (!Object.hasOwn(properties, name)) throw new Mismatch('unknown', { field: brief(at(path, name)) });
      }
      for (const [name, check, byDefault] of fields) {
        value[name] = Object.hasOwn(value, name)
          ? check(value[name], at(path, name))
          : structuredClone(byDefault);
      }
      return value;
    };
  }

  return (value) => make(schema)(value, '');
}

const isObject = (value) => value !== null && typeof value === 'object' && !Array.isArray(value);
const at = (path, name) => (path === '' ? name : `${path}.${name}`);
const wrong = (path, value, expected) => new Mismatch('wrong', { field: path, value: brief(value), expected });

/** A value in an error: short, whatever it is. */
function brief(value) {
  const text = typeof value === 'string' ? value : (JSON.stringify(value) ?? String(value));
  return text.length > 40 ? `${text.slice(0, 40)}…` : text;
}

function oneOf(values) {
  const known = new Set(values);
  return (value, path) => {
    if (!known.has(value)) throw wrong(path, value, values.join(', '));
    return value;
  };
}

function list(check) {
  return (value, path) => {
    if (!Array.isArray(value)) throw wrong(path, value, 'array');
    for (let index = 0; index < value.length; index += 1) check(value[index], path);
    return value;
  };
}

function map(check) {
  return (value, path) => {
    if (!isObject(value)) throw wrong(path, value, 'object');
    for (const name of Object.keys(value)) check(value[name], path);
    return value;
  };
}

const IS_A = {
  string: (value) => typeof value === 'string',
  boolean: (value) => typeof value === 'boolean',
  null: (value) => value === null,
  number: (value) => Number.isFinite(value),
  integer: (value) => Number.isSafeInteger(value),
};

function plain({ type, minimum = -Infinity, maximum = Infinity }) {
  if (type === undefined) return (value) => value;
  const isA = IS_A[type];
  return (value, path) => {
    if (!isA(value)) throw wrong(path, value, type);
    if (value < minimum) throw wrong(path, value, `≥ ${minimum}`);
    if (value > maximum) throw wrong(path, value, `≤ ${maximum}`);
    return value;
  };
}
